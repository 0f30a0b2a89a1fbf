package headrace.peers;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Runs one job in a mini-cluster of two slots until the process is ended.
 *
 * <p>Arguments: job, bootstrap, input topic, output topic, checkpoint directory, earliest or latest. Every 100 ms a line
 * of JSON tells how many events were read.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        String job = arguments[0];
        String bootstrap = arguments[1];
        String output = arguments[3];
        boolean earliest = arguments[5].equals("earliest");

        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.dir", "file://" + arguments[4]);
        configuration.setString("state.backend.type", "hashmap");
        // A failure ends the job, so that whoever measures it sees it.
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("rest.address", "127.0.0.1");
        configuration.setString("rest.bind-address", "127.0.0.1");
        configuration.setString("rest.bind-port", "0");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        environment.enableCheckpointing(10_000, CheckpointingMode.EXACTLY_ONCE);

        KafkaSource<Position> source =
                KafkaSource.<Position>builder()
                        .setBootstrapServers(bootstrap)
                        .setTopics(arguments[2])
                        .setGroupId("flink-" + job)
                        .setStartingOffsets(earliest ? OffsetsInitializer.earliest() : OffsetsInitializer.latest())
                        .setValueOnlyDeserializer(new PositionReader())
                        .build();
        WatermarkStrategy<Position> watermarks =
                WatermarkStrategy.<Position>forBoundedOutOfOrderness(Duration.ofSeconds(1))
                        .withTimestampAssigner((position, time) -> position.eventTime)
                        .withIdleness(Duration.ofSeconds(30));
        DataStream<Position> positions = environment.fromSource(source, watermarks, "positions");

        DataStream<Answer> answers;
        switch (job) {
            case "vehicle-distribution":
                answers = Jobs.vehicleDistribution(positions);
                break;
            case "delay-quantiles":
                answers = Jobs.delayDistribution(positions);
                break;
            case "emergency-stop-pattern":
                answers = Jobs.emergencyStop(positions);
                break;
            default:
                throw new IllegalArgumentException("there is no job " + job);
        }
        answers.sinkTo(
                KafkaSink.<Answer>builder()
                        .setBootstrapServers(bootstrap)
                        .setRecordSerializer(new AnswerWriter(output, job))
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix("flink-" + output)
                        .setProperty("transaction.timeout.ms", "120000")
                        .build());
        tellProgress();
        environment.execute(job);
    }

    private static void tellProgress() {
        Thread teller =
                new Thread(
                        () -> {
                            try {
                                while (true) {
                                    System.out.println(
                                            "{\"event\":\"count\",\"count\":" + PositionReader.READ.sum() + "}");
                                    System.out.flush();
                                    Thread.sleep(100);
                                }
                            } catch (InterruptedException end) {
                                Thread.currentThread().interrupt();
                            }
                        },
                        "teller");
        teller.setDaemon(true);
        teller.start();
    }
}
