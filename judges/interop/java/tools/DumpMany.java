import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;

/**
 * Runs DumpLogSegments many times in one JVM. The argument is the tool's class (it moved between releases); every line of
 * standard input is the arguments of one run, separated by tabs. A run's output ends with a line "@@ OUTCOME".
 */
public final class DumpMany {
    private static final class Exited extends RuntimeException {
        Exited(int status) {
            super("exit " + status);
        }
    }

    public static void main(String[] args) throws Exception {
        // what the tool prints to either stream stays in one order
        PrintStream out = new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 20), false, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        throwInsteadOfExit();
        Method tool = Class.forName(args[0]).getMethod("main", String[].class);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String outcome = "ok";
            try {
                tool.invoke(null, (Object) line.split("\t"));
            } catch (InvocationTargetException failure) {
                outcome = failure.getCause().toString().replace('\n', ' ');
            }
            out.println("@@ " + outcome);
        }
        out.flush();
    }

    /** The class moved in 4.4. */
    private static void throwInsteadOfExit() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before44) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object throwing = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, arguments) -> {
            throw new Exited((int) arguments[0]);
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, throwing);
    }
}
