import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.BufferedReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** A test in Java that scripts its Kafka, with kafka-clients and JUnit 5, and fletchlog on PATH. */
class OrdersTest {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static Process server;
    private static String bootstrap;
    private static String control;

    @BeforeAll
    static void serve() throws Exception {
        List<String> command = List.of("fletchlog", "serve", "--memory", "--auto-create", "1", "--listen", "127.0.0.1:0",
            "--control", "127.0.0.1:0", "--print-address", "--with-parent");
        server = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        String line = new BufferedReader(server.inputReader()).readLine();
        bootstrap = named("bootstrap", line);
        control = named("control", line);
    }

    @AfterAll
    static void end() {
        server.destroy();
    }

    private static String named(String name, String json) {
        Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]*)\"").matcher(json);
        found.find();
        return found.group(1);
    }

    /** One request to the control interface; its answer as text. */
    private static String call(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + "/v1" + path)).header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(200, response.statusCode(), response.body());
        return response.body();
    }

    private static KafkaProducer<String, String> producer() {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "client.id", "shop", "transactional.id", "orders");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    @Test
    void aProducerThatWasPausedIsFencedByItsSuccessor() throws Exception {
        try (KafkaProducer<String, String> paused = producer()) {
            paused.initTransactions();
            paused.beginTransaction();
            paused.send(new ProducerRecord<>("orders", "order 1")).get();
            call("POST", "/clock/advance", "{\"seconds\": 61}");
            try (KafkaProducer<String, String> successor = producer()) {
                successor.initTransactions();
                assertThrows(ProducerFencedException.class, paused::commitTransaction);
            }
        }
        assertEquals(true, call("GET", "/requests?api=EndTxn&client_id=shop", "").contains("PRODUCER_FENCED"));
    }
}
