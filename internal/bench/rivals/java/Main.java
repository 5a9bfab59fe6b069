import com.google.gson.Gson;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The Java program of internal/bench/rivals, whose doc.go has the protocol: bucket4j, and Sash over RESP. */
public class Main {
    /** Makes one decision on a key, for one unit. */
    interface Decide {
        boolean allowed(String key) throws Exception;
    }

    /** Makes decisions under a limit of so many units per window. */
    interface Limiter {
        Decide under(long units, long windowMs);
    }

    record Contender(String version, Limiter limiter) {}

    record Request(String op, String contender, String key, String prefix, int keys, long units, long window_ms,
            int callers, long for_ms) {}

    record Named(String name, String version) {}

    record Hello(String runtime, List<Named> contenders) {}

    record Allowed(boolean allowed) {}

    record Failed(String error) {}

    public static void main(String[] args) throws Exception {
        var redis = clientOf(args[0]);
        var sash = clientOf(args[1]);
        var contenders = new LinkedHashMap<String, Contender>();
        Bucket4j.addTo(contenders, redis);
        SashOverResp.addTo(contenders, sash);
        var gson = new Gson();
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var named = contenders.entrySet().stream().map(c -> new Named(c.getKey(), c.getValue().version())).toList();
        out.println(gson.toJson(new Hello("Java " + System.getProperty("java.version"), named)));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            Object answer;
            try {
                answer = answer(contenders, gson.fromJson(line, Request.class));
            } catch (Exception e) { // whatever it is, the harness drops the contender
                answer = new Failed(e.toString());
            }
            out.println(gson.toJson(answer));
        }
        redis.shutdown();
        sash.shutdown();
    }

    static RedisClient clientOf(String address) {
        int colon = address.lastIndexOf(':');
        return RedisClient.create(RedisURI.create(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))));
    }

    static Object answer(Map<String, Contender> contenders, Request request) throws Exception {
        var contender = contenders.get(request.contender());
        if (contender == null) {
            throw new IllegalArgumentException("there is no contender " + request.contender());
        }
        var decide = contender.limiter().under(request.units(), request.window_ms());
        return switch (request.op()) {
            case "ask" -> new Allowed(decide.allowed(request.key()));
            case "load" -> new Load(decide, request).run();
            default -> throw new IllegalArgumentException("there is no operation " + request.op());
        };
    }
}
