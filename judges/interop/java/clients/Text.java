import java.math.BigInteger;
import java.security.MessageDigest;
import java.util.Properties;
import org.apache.kafka.common.header.Header;

/** How the programs write bytes as text, and read properties. */
final class Text {
    private static final int LONG = 256;

    /** Hexadecimal digits; "-" is null; long ones are "#LENGTH:SHA-256". */
    static String of(byte[] bytes) {
        if (bytes == null) {
            return "-";
        }
        if (bytes.length <= LONG) {
            return "x" + hex(bytes);
        }
        try {
            return "#" + bytes.length + ":" + hex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static String of(Iterable<Header> headers) {
        StringBuilder text = new StringBuilder();
        for (Header header : headers) {
            byte[] name = header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8);
            text.append(text.length() == 0 ? "" : ",").append(of(name)).append('=').append(of(header.value()));
        }
        return text.length() == 0 ? "none" : text.toString();
    }

    static byte[] parse(String text) {
        if (text.equals("-")) {
            return null;
        }
        byte[] bytes = new byte[text.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(text.substring(1 + 2 * i, 3 + 2 * i), 16);
        }
        return bytes;
    }

    /** Arguments of the form key=value. */
    static Properties properties(String[] args) {
        Properties properties = new Properties();
        for (String arg : args) {
            int at = arg.indexOf('=');
            properties.put(arg.substring(0, at), arg.substring(at + 1));
        }
        return properties;
    }

    private static String hex(byte[] bytes) {
        return bytes.length == 0 ? "" : String.format("%0" + 2 * bytes.length + "x", new BigInteger(1, bytes));
    }
}
