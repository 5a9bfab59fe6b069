import java.util.HashMap;
import java.util.List;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.util.KeyValue;
import redis.clients.jedis.util.SafeEncoder;

/** See docs/migrating/bucket4j.md. It prints how twelve calls of one user are answered. */
public class Bucket4j {
    record Answer(boolean allowed, long remaining, double retryAfter) {}

    static Answer tryConsume(RedisClient redis, String user, long units) {
        var reply = new HashMap<String, Object>();
        for (var field : (List<?>) redis.sendCommand(() -> SafeEncoder.encode("SASH.ALLOW"),
                "web", "ENTRY", "user", user, "COST", Long.toString(units))) {
            var pair = (KeyValue<?, ?>) field;
            reply.put(SafeEncoder.encode((byte[]) pair.getKey()), pair.getValue());
        }
        return new Answer(reply.get("allowed").equals(1L), (Long) reply.get("remaining"), (Double) reply.get("retry_after"));
    }

    public static void main(String[] args) {
        try (var redis = RedisClient.create("127.0.0.1", Integer.parseInt(System.getenv("SASH_PORT")))) {
            for (int call = 0; call < 12; call++) {
                var answer = tryConsume(redis, "bob", 1);
                if (answer.allowed()) {
                    System.out.println("served, " + answer.remaining() + " left");
                } else {
                    System.out.println(answer.retryAfter() > 5 ? "limited for more than 5 s" : "limited for less");
                }
            }
        }
    }
}
