import org.apache.kafka.tools.api.Decoder;

/** Prints keys and values as hexadecimal digits, so that any byte survives the text output. */
public final class HexDecoder implements Decoder<String> {
    @Override
    public String fromBytes(byte[] bytes) {
        StringBuilder text = new StringBuilder("0x");
        for (byte b : bytes) {
            text.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return text.toString();
    }
}
