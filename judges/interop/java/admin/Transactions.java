import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;

/** Prints "ID STATE PRODUCER_ID PRODUCER_EPOCH TIMEOUT_MS" of every transactional id of the broker of the argument. */
public final class Transactions {
    public static void main(String[] args) throws Exception {
        try (AdminClient admin = AdminClient.create(Map.of("bootstrap.servers", args[0]))) {
            List<String> ids = admin.listTransactions().all().get().stream().map(TransactionListing::transactionalId).toList();
            Map<String, TransactionDescription> described = new TreeMap<>(admin.describeTransactions(ids).all().get());
            described.forEach((id, at) -> System.out.println(String.join(" ", id, at.state().toString(), "" + at.producerId(),
                "" + at.producerEpoch(), "" + at.transactionTimeoutMs())));
        }
    }
}
