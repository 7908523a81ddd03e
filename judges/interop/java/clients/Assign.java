import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Assigns one group per line: "t=TOPIC:PARTITIONS.. m=ID|INSTANCE|TOPIC,..|GENERATION|TOPIC-PARTITION,..|RACK.." (spaces between
 * members and topics, empty parts allowed). With racks, a topic is "t=TOPIC:PARTITIONS:RACK,..;RACK,..": those of the replicas of each
 * partition. Answers per line and strategy: "ID=TOPIC-PARTITION,.. ..", or "!" where Java's
 * assignor fails.
 */
public final class Assign {
    private static final Node NODE = new Node(1, "localhost", 9092);

    private interface Make {
        ConsumerPartitionAssignor assignor();
    }

    public static void main(String[] args) throws Exception {
        Map<String, Make> strategies = new TreeMap<>();
        strategies.put("range", RangeAssignor::new);
        strategies.put("roundrobin", RoundRobinAssignor::new);
        strategies.put("sticky", StickyAssignor::new);
        strategies.put("cooperative-sticky", CooperativeStickyAssignor::new);
        StringBuilder out = new StringBuilder();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            for (String strategy : args) {
                out.append(answer(strategies.get(strategy), line.split(" "))).append('\n');
            }
        }
        System.out.print(out);
    }

    private static String answer(Make make, String[] words) throws ReflectiveOperationException {
        Set<PartitionInfo> partitions = new HashSet<>();
        Map<String, Subscription> members = new HashMap<>();
        for (String word : words) {
            if (word.startsWith("t=")) {
                String[] topic = word.substring(2).split(":", -1);
                String[] racks = topic.length > 2 ? topic[2].split(";", -1) : new String[0];
                for (int i = 0; i < Integer.parseInt(topic[1]); i++) {
                    Node[] replicas = i < racks.length ? nodes(list(racks[i])) : new Node[] {NODE};
                    partitions.add(new PartitionInfo(topic[0], i, NODE, replicas, replicas));
                }
            } else {
                String[] parts = word.substring(2).split("\\|", -1);
                members.put(parts[0], subscription(make.assignor(), parts));
            }
        }
        Cluster cluster = new Cluster("interop", List.of(NODE), partitions, Set.of(), Set.of());
        Map<String, Assignment> assigned;
        try {
            assigned = new TreeMap<>(make.assignor().assign(cluster, new GroupSubscription(members)).groupAssignment());
        } catch (IllegalStateException defect) {
            return "!";
        }
        StringBuilder text = new StringBuilder();
        assigned.forEach((member, assignment) -> {
            text.append(text.length() == 0 ? "" : " ").append(member).append('=');
            String separator = "";
            for (TopicPartition tp : assignment.partitions()) {
                text.append(separator).append(tp);
                separator = ",";
            }
        });
        return text.toString();
    }

    /** What a member sends when it joins: the assignor itself writes what it remembers. */
    private static Subscription subscription(ConsumerPartitionAssignor assignor, String[] parts)
            throws ReflectiveOperationException {
        List<String> topics = list(parts[2]);
        List<TopicPartition> owned = new ArrayList<>();
        for (String tp : list(parts[4])) {
            int at = tp.lastIndexOf('-');
            owned.add(new TopicPartition(tp.substring(0, at), Integer.parseInt(tp.substring(at + 1))));
        }
        if (!parts[3].isEmpty()) {
            assignor.onAssignment(new Assignment(owned),
                new ConsumerGroupMetadata("g", Integer.parseInt(parts[3]), parts[0], Optional.empty()));
        }
        ByteBuffer userData = assignor.subscriptionUserData(new TreeSet<>(topics));
        // an eager member has given up everything before it joins
        List<TopicPartition> kept = assignor instanceof CooperativeStickyAssignor ? owned : List.of();
        Optional<String> rack = Optional.of(parts[5]).filter(name -> !name.isEmpty());
        Subscription subscription = subscription(topics, userData, kept, parts[3].isEmpty() ? -1 : Integer.parseInt(parts[3]), rack);
        subscription.setGroupInstanceId(parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]));
        return subscription;
    }

    /** Clients of 3.5 and later send generation and rack in fields; the constructor for them is not in 2.6. */
    private static Subscription subscription(
            List<String> topics, ByteBuffer userData, List<TopicPartition> owned, int generation, Optional<String> rack)
            throws ReflectiveOperationException {
        for (Constructor<?> constructor : Subscription.class.getConstructors()) {
            if (constructor.getParameterCount() == 5) {
                return (Subscription) constructor.newInstance(topics, userData, owned, generation, rack);
            }
        }
        return new Subscription(topics, userData, owned);
    }

    private static Node[] nodes(List<String> racks) {
        Node[] nodes = new Node[racks.size()];
        for (int i = 0; i < nodes.length; i++) {
            nodes[i] = new Node(1 + i, "localhost", 9092, racks.get(i));
        }
        return nodes;
    }

    private static List<String> list(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }
}
