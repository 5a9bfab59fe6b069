import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.BandwidthBuilder.BandwidthBuilderRefillStage;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.BucketProxy;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.distributed.proxy.ProxyManager;
import io.github.bucket4j.distributed.proxy.optimization.Optimizations;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * bucket4j's token bucket, which is read from Redis, taken from by the clock of this process, and compared and swapped
 * there, over the one connection of Lettuce that all threads share.
 */
final class Bucket4j {
    private Bucket4j() {}

    /** How a bucket fills. */
    interface Refill {
        Bandwidth of(BandwidthBuilderRefillStage bucket, long units, Duration window);
    }

    static void addTo(Map<String, Main.Contender> contenders, RedisClient redis) {
        var manager = Bucket4jLettuce.casBasedBuilder(redis)
                .expirationAfterWrite(ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofSeconds(1)))
                .build();
        for (boolean batching : new boolean[] {false, true}) {
            var suffix = batching ? ", batching" : "";
            contenders.put("bucket4j, greedy refill" + suffix, contender(manager, batching,
                    (bucket, units, window) -> bucket.refillGreedy(units, window).build()));
            contenders.put("bucket4j, refill at intervals" + suffix, contender(manager, batching,
                    (bucket, units, window) -> bucket.refillIntervally(units, window).build()));
        }
    }

    private static Main.Contender contender(ProxyManager<byte[]> manager, boolean batching, Refill refill) {
        return new Main.Contender(Bucket4jLettuce.class.getPackage().getImplementationVersion(), (units, windowMs) -> {
            var limit = refill.of(Bandwidth.builder().capacity(units), units, Duration.ofMillis(windowMs));
            var configuration = BucketConfiguration.builder().addLimit(limit).build();
            if (!batching) {
                return key -> manager.getProxy(bytes(key), () -> configuration).tryConsume(1);
            }
            var builder = manager.builder().withOptimization(Optimizations.batching());
            var buckets = new ConcurrentHashMap<String, BucketProxy>(); // calls of one proxy join
            return key -> buckets.computeIfAbsent(key, k -> builder.build(bytes(k), () -> configuration)).tryConsume(1);
        });
    }

    private static byte[] bytes(String key) {
        return key.getBytes(StandardCharsets.UTF_8);
    }
}
