import java.util.List;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.SafeEncoder;

/** Jedis. Arguments: the name of a subject, the protocol (2 or 3). */
public class Client {
    public static void main(String[] args) {
        var protocol = args[1].equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        var config = DefaultJedisClientConfig.builder().password(System.getenv("SASH_TOKEN")).protocol(protocol).build();
        try (var jedis = new Jedis("127.0.0.1", Integer.parseInt(System.getenv("SASH_PORT")), config)) {
            var line = new StringBuilder("throttle");
            for (var number : (List<?>) send(jedis, "CL.THROTTLE", args[0], "2", "3", "60")) {
                line.append(' ').append(number);
            }
            System.out.println(line);
            long allowed = 0;
            for (int call = 0; call < 7; call++) {
                allowed += allowed(send(jedis, "SASH.ALLOW", "web", "ENTRY", "user", args[0]));
            }
            System.out.println("allowed " + allowed);
            var script = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])";
            List<String> once = List.of(args[0] + " once"), limit = List.of("0", "1", "60");
            var transaction = jedis.multi();
            transaction.sendCommand(() -> SafeEncoder.encode("CL.THROTTLE"), once.get(0), "0", "1", "60");
            transaction.eval(script, once, limit);
            line = new StringBuilder("multi");
            for (var reply : transaction.exec()) {
                line.append(' ').append(((List<?>) reply).get(0));
            }
            System.out.println(line.append(' ').append(((List<?>) jedis.evalsha(jedis.scriptLoad(script), once, limit)).get(0)));
            try {
                send(jedis, "SASH.ALLOW", "web", "ENTRY");
            } catch (JedisDataException e) {
                System.out.println("error " + e.getMessage());
            }
            try {
                jedis.auth("wrong");
            } catch (JedisDataException e) {
                System.out.println("denied " + e.getMessage());
            }
        }
    }

    static Object send(Jedis jedis, String command, String... args) {
        return jedis.sendCommand(() -> SafeEncoder.encode(command), args);
    }

    /** The first value, of a list or of a map, which Jedis has as a list of pairs. */
    static long allowed(Object reply) {
        var first = ((List<?>) reply).get(0);
        return (Long) (first instanceof redis.clients.jedis.util.KeyValue<?, ?> pair ? pair.getValue() : ((List<?>) reply).get(1));
    }
}
