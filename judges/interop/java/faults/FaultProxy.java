import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.protocol.ApiKeys;

/**
 * Stands between producers and a broker and treats their produce requests as the scripts say, by the quiescent answering
 * policy: requests are held and numbered as they arrive; when a client has sent nothing for a while, its oldest is treated.
 * Arguments: port to listen on, port of the broker, milliseconds of silence. Standard input: "CLIENT N=ACTION .." per
 * client id, then "go"; prints "ready". At the end of the input prints one line per request and partition: "CLIENT N AFTER
 * ACTION PARTITION PID EPOCH SEQUENCE ID,ID.. ERROR OFFSET" ("- -" where there was no answer), and ends.
 */
public final class FaultProxy {
    private final Map<String, Client> clients = new ConcurrentHashMap<>();
    private final int broker;
    private final long silence;

    private FaultProxy(int broker, long silenceMs) {
        this.broker = broker;
        this.silence = silenceMs * 1_000_000;
    }

    public static void main(String[] args) throws Exception {
        FaultProxy proxy = new FaultProxy(Integer.parseInt(args[1]), Long.parseLong(args[2]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); !line.equals("go"); line = in.readLine()) {
            String[] words = line.split(" ");
            Client client = new Client();
            for (int i = 1; i < words.length; i++) {
                String[] action = words[i].split("=");
                client.script.put(Integer.parseInt(action[0]), action[1]);
            }
            proxy.clients.put(words[0], client);
        }
        ServerSocket listener = new ServerSocket(Integer.parseInt(args[0]), 500, InetAddress.getByName("127.0.0.1"));
        daemon(() -> {
            while (true) {
                Socket socket = listener.accept();
                daemon(() -> proxy.serve(socket));
            }
        });
        daemon(proxy::treat);
        System.out.println("ready");
        while (in.readLine() != null) { }
        StringBuilder out = new StringBuilder();
        proxy.clients.forEach((id, client) -> {
            synchronized (client) {
                client.log.forEach(held -> held.print(id, out));
            }
        });
        System.out.print(out);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void daemon(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException closed) {
                // a connection that ended
            } catch (Exception failure) {
                failure.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** What one client id did. Everything below is guarded by its monitor. */
    private static final class Client {
        final Map<Integer, String> script = new HashMap<>();
        final List<Held> log = new ArrayList<>();
        final Deque<Held> held = new ArrayDeque<>();
        int lastTreated;
        long lastFrame;
    }

    /** One produce request. */
    private static final class Held {
        final Connection connection;
        final Produce produce;
        final int number;
        final int after;
        String action = "held";

        Held(Connection connection, Produce produce, int number, int after) {
            this.connection = connection;
            this.produce = produce;
            this.number = number;
            this.after = after;
        }

        void print(String id, StringBuilder out) {
            for (String part : produce.parts()) {
                out.append(id + " " + number + " " + after + " " + action + " " + part + "\n");
            }
        }
    }

    /** A client's connection and the one to the broker behind it. */
    private static final class Connection {
        final Socket client;
        final Socket broker;
        final DataOutputStream toClient;
        final DataOutputStream toBroker;
        final DataInputStream fromBroker;
        /** Frames in order: bytes, or a held produce request; a broker answers a connection in order. */
        final Deque<Object> queue = new ArrayDeque<>();

        Connection(Socket client, Socket broker) throws IOException {
            this.client = client;
            this.broker = broker;
            client.setTcpNoDelay(true);
            broker.setTcpNoDelay(true);
            toClient = new DataOutputStream(client.getOutputStream());
            toBroker = new DataOutputStream(broker.getOutputStream());
            fromBroker = new DataInputStream(broker.getInputStream());
        }

        byte[] ask(byte[] frame) throws IOException {
            write(toBroker, frame);
            return read(fromBroker);
        }

        /** Answers what waits in front of the next held request. */
        void pump() throws IOException {
            while (queue.peek() instanceof byte[]) {
                write(toClient, ask((byte[]) queue.poll()));
            }
        }

        void close() throws IOException {
            client.close();
            broker.close();
        }
    }

    private static byte[] read(DataInputStream in) throws IOException {
        byte[] frame = new byte[in.readInt()];
        in.readFully(frame);
        return frame;
    }

    private static void write(DataOutputStream out, byte[] frame) throws IOException {
        ByteBuffer whole = ByteBuffer.allocate(4 + frame.length).putInt(frame.length).put(frame);
        out.write(whole.array());
        out.flush();
    }

    private void serve(Socket socket) throws IOException {
        Connection connection = new Connection(socket, new Socket("127.0.0.1", broker));
        DataInputStream in = new DataInputStream(socket.getInputStream());
        try {
            while (true) {
                byte[] frame = read(in);
                Client client = clients.get(clientId(frame));
                if (client == null) {
                    write(connection.toClient, connection.ask(frame));
                } else {
                    arrived(client, connection, frame);
                }
            }
        } finally {
            connection.close();
        }
    }

    private static String clientId(byte[] frame) {
        ByteBuffer buffer = ByteBuffer.wrap(frame).position(8);
        short length = buffer.getShort();
        return length < 0 ? "" : new String(frame, 10, length);
    }

    private static void arrived(Client client, Connection connection, byte[] frame) throws IOException {
        synchronized (client) {
            client.lastFrame = System.nanoTime();
            if (ByteBuffer.wrap(frame).getShort() == ApiKeys.PRODUCE.id) {
                Held held = new Held(connection, new Produce(frame), client.log.size() + 1, client.lastTreated);
                client.log.add(held);
                client.held.add(held);
                connection.queue.add(held);
            } else {
                connection.queue.add(frame);
            }
            connection.pump();
        }
    }

    private void treat() throws Exception {
        while (true) {
            Thread.sleep(2);
            for (Client client : clients.values()) {
                synchronized (client) {
                    if (!client.held.isEmpty() && System.nanoTime() - client.lastFrame > silence) {
                        Held held = client.held.poll();
                        held.action = client.script.getOrDefault(held.number, "ok");
                        try {
                            carryOut(client, held);
                        } catch (IOException gone) {
                            held.action += " (connection lost)";
                        }
                        client.lastTreated = held.number;
                        client.lastFrame = System.nanoTime();
                    }
                }
            }
        }
    }

    private static void carryOut(Client client, Held held) throws IOException {
        Connection connection = held.connection;
        connection.queue.remove(held);
        String[] words = held.action.split("@")[0].split(":");
        int only = held.action.contains("@") ? Integer.parseInt(held.action.split("@")[1]) : -1;
        switch (words[0]) {
            case "lost-ack":
                held.produce.answered(connection.ask(held.produce.whole()));
                lose(client, connection);
                return;
            case "disconnect":
                lose(client, connection);
                return;
            case "ok":
                held.produce.answered(connection.ask(held.produce.whole()));
                break;
            case "appended-refused":
                held.produce.answered(connection.ask(held.produce.whole()));
                held.produce.refuse(only, words);
                break;
            case "refused":
                if (only >= 0 && held.produce.hasOthersThan(only)) {
                    held.produce.answered(connection.ask(held.produce.without(only)));
                }
                held.produce.refuse(only, words);
                break;
            default:
                throw new IllegalArgumentException(held.action);
        }
        write(connection.toClient, held.produce.answer());
        connection.pump();
    }

    /** Closes a connection; what else was held on it is lost with it. */
    private static void lose(Client client, Connection connection) throws IOException {
        for (Object other : connection.queue) {
            if (other instanceof Held) {
                ((Held) other).action = "lost-with-connection";
                client.held.remove(other);
            }
        }
        connection.close();
    }
}
