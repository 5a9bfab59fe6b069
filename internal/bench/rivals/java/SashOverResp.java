import io.lettuce.core.LettuceVersion;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Sash over RESP, with Lettuce: one connection that all threads share. */
final class SashOverResp {
    private SashOverResp() {}

    /** SASH.ALLOW, which Lettuce does not know. */
    enum Command implements ProtocolKeyword {
        ALLOW;

        private final byte[] name = "SASH.ALLOW".getBytes(StandardCharsets.US_ASCII);

        @Override
        public byte[] getBytes() {
            return name;
        }
    }

    static void addTo(Map<String, Main.Contender> contenders, RedisClient client) {
        StatefulRedisConnection<String, String> sash = client.connect();
        var version = LettuceVersion.getVersion().replaceFirst("/.*", ""); // without the commit
        contenders.put("Sash over RESP, Lettuce", new Main.Contender(version, (units, windowMs) -> {
            var limit = units + "/" + windowMs + "ms";
            return key -> {
                var reply = sash.sync().dispatch(Command.ALLOW, new ArrayOutput<>(StringCodec.UTF8),
                        new CommandArgs<>(StringCodec.UTF8).addKey(key).add("LIMIT").add(limit));
                return reply.get(1).equals(1L); // after the name "allowed"
            };
        }));
    }
}
