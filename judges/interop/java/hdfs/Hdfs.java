import java.lang.reflect.Field;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.server.datanode.metrics.DataNodeMetrics;
import org.apache.hadoop.metrics2.lib.MutableCounterLong;

/** A NameNode and a DataNode on loopback: java Hdfs DIRECTORY. Prints its port, then for every line of its input the bytes that were read from the DataNode. */
public class Hdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("hdfs.minidfs.basedir", arguments[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("PORT " + cluster.getNameNodePort());
        // the same number by JMX is ten seconds old
        Field field = DataNodeMetrics.class.getDeclaredField("bytesRead");
        field.setAccessible(true);
        MutableCounterLong bytes = (MutableCounterLong) field.get(cluster.getDataNodes().get(0).getMetrics());
        for (int read = System.in.read(); read >= 0; read = System.in.read()) {
            System.out.println("READ " + bytes.value());
        }
        cluster.shutdown();
        System.exit(0);
    }
}
