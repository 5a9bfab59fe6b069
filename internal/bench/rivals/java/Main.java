import com.google.gson.Gson;
import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.BucketProxy;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.distributed.proxy.optimization.Optimizations;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.IntStream;
import org.HdrHistogram.Histogram;

/** bucket4j, as its manual has it fast: batching, over one connection of Lettuce. See internal/bench/languages.go. */
public class Main {
    record Request(int keys, int callers, long units, long window_ms, long for_ms) {}

    record Answer(long decisions, long admitted, double ms, double p50_us, double p99_us) {}

    public static void main(String[] args) throws Exception {
        var redis = RedisClient.create("redis://" + args[0]);
        var buckets = Bucket4jLettuce.casBasedBuilder(redis)
                .expirationAfterWrite(ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofSeconds(1)))
                .build().builder().withOptimization(Optimizations.batching());
        var gson = new Gson();
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var version = Bucket4jLettuce.class.getPackage().getImplementationVersion();
        out.println(gson.toJson(Map.of("version", "bucket4j " + version + ", Java " + System.getProperty("java.version"))));
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            var request = gson.fromJson(line, Request.class);
            var limit = Bandwidth.builder().capacity(request.units)
                    .refillGreedy(request.units, Duration.ofMillis(request.window_ms)).build();
            var configuration = BucketConfiguration.builder().addLimit(limit).build();
            var proxies = new ConcurrentHashMap<String, BucketProxy>(); // calls of one proxy join
            out.println(gson.toJson(load(request, key -> proxies.computeIfAbsent(key,
                    k -> buckets.build(k.getBytes(StandardCharsets.UTF_8), () -> configuration)).tryConsume(1))));
        }
        redis.shutdown();
    }

    interface Decide {
        boolean allowed(String key);
    }

    /** Decides from threads for a time. */
    static Answer load(Request request, Decide decide) throws Exception {
        var keys = IntStream.range(0, request.keys).mapToObj(i -> "bench:" + i).toArray(String[]::new);
        var times = new Histogram(60_000_000_000L, 3); // guarded by itself
        var admitted = new long[1]; // guarded by times
        var start = new CyclicBarrier(request.callers + 1); // starting threads takes time of its own
        var threads = Executors.newFixedThreadPool(request.callers);
        var callers = IntStream.range(0, request.callers).mapToObj(i -> threads.submit((Callable<Void>) () -> {
            var own = new Histogram(60_000_000_000L, 3);
            long yes = 0;
            start.await();
            long now = System.nanoTime();
            for (long end = now + request.for_ms * 1_000_000; now < end; ) {
                yes += decide.allowed(keys[ThreadLocalRandom.current().nextInt(keys.length)]) ? 1 : 0;
                long after = System.nanoTime();
                own.recordValue(after - now);
                now = after;
            }
            synchronized (times) {
                times.add(own);
                admitted[0] += yes;
            }
            return null;
        })).toList();
        start.await();
        long began = System.nanoTime();
        for (var caller : callers) {
            caller.get();
        }
        double ms = (System.nanoTime() - began) / 1e6;
        threads.shutdown();
        return new Answer(times.getTotalCount(), admitted[0], ms, times.getValueAtPercentile(50) / 1e3,
                times.getValueAtPercentile(99) / 1e3);
    }
}
