package headrace.peers;

import com.google.protobuf.Any;
import com.google.protobuf.Timestamp;
import headrace.v1.Envelope.Event;
import headrace.v1.Records.Column;
import headrace.v1.Records.Result;
import java.nio.charset.StandardCharsets;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Writes answers in the form in which Headrace writes its results, so that the same readers can time them. */
public class AnswerWriter implements KafkaRecordSerializationSchema<Answer> {
    private static final long serialVersionUID = 1L;
    private static final String TYPE = "type.googleapis.com/headrace.v1.Result";

    private final String topic;
    private final String job;

    public AnswerWriter(String topic, String job) {
        this.topic = topic;
        this.job = job;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(Answer answer, KafkaSinkContext context, Long timestamp) {
        Result.Builder result = Result.newBuilder().setJob(job).setKey(answer.key);
        result.setIdempotencyKey(job + "|" + answer.key + "|" + answer.windowEnd + "|" + answer.eventTime);
        if (answer.windowEnd > 0) {
            result.setWindowStart(instant(answer.windowStart)).setWindowEnd(instant(answer.windowEnd));
        }
        for (int index = 0; index < answer.names.length; index++) {
            result.addColumns(
                    Column.newBuilder().setName(answer.names[index]).setType("f64").setReal(answer.values[index]));
        }
        Event event =
                Event.newBuilder()
                        .setEventTimestamp(instant(answer.eventTime))
                        .setDetails(Any.newBuilder().setTypeUrl(TYPE).setValue(result.build().toByteString()))
                        .build();
        return new ProducerRecord<>(topic, answer.key.getBytes(StandardCharsets.UTF_8), event.toByteArray());
    }

    private static Timestamp instant(long millis) {
        return Timestamp.newBuilder()
                .setSeconds(Math.floorDiv(millis, 1000L))
                .setNanos((int) Math.floorMod(millis, 1000L) * 1_000_000)
                .build();
    }
}
