import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.HdrHistogram.Histogram;

/** Decides from threads for a time. */
final class Load {
    record Outcome(long decisions, long admitted, long errors, double ms, double p50_us, double p99_us) {}

    private final Main.Decide decide;
    private final Main.Request request;
    private final String[] keys;
    private final CyclicBarrier start; // starting threads takes time of its own
    private final Histogram times = histogram(); // guarded by this, as are the counts
    private long admitted;
    private long errors;

    Load(Main.Decide decide, Main.Request request) {
        this.decide = decide;
        this.request = request;
        keys = IntStream.range(0, request.keys()).mapToObj(i -> request.prefix() + ":" + i).toArray(String[]::new);
        start = new CyclicBarrier(request.callers() + 1);
    }

    private static Histogram histogram() {
        return new Histogram(TimeUnit.MINUTES.toNanos(1), 3);
    }

    Outcome run() throws Exception {
        var threads = Executors.newFixedThreadPool(request.callers());
        var callers = IntStream.range(0, request.callers()).mapToObj(i -> threads.submit((Callable<Void>) this::call)).toList();
        start.await();
        long began = System.nanoTime();
        for (Future<Void> caller : callers) {
            caller.get();
        }
        double ms = (System.nanoTime() - began) / 1e6;
        threads.shutdown();
        return new Outcome(times.getTotalCount() - errors, admitted, errors, ms,
                times.getValueAtPercentile(50) / 1e3, times.getValueAtPercentile(99) / 1e3);
    }

    private Void call() throws Exception {
        var own = histogram();
        long yes = 0;
        long failed = 0;
        start.await();
        long now = System.nanoTime();
        long end = now + TimeUnit.MILLISECONDS.toNanos(request.for_ms());
        while (now < end) {
            try {
                yes += decide.allowed(keys[ThreadLocalRandom.current().nextInt(keys.length)]) ? 1 : 0;
            } catch (Exception e) {
                failed++;
            }
            long after = System.nanoTime();
            own.recordValue(Math.min(after - now, TimeUnit.MINUTES.toNanos(1)));
            now = after;
        }
        synchronized (this) {
            times.add(own);
            admitted += yes;
            errors += failed;
        }
        return null;
    }
}
