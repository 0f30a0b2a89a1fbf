package headrace.peers;

import headrace.v1.Envelope.Event;
import headrace.v1.Transit.VehiclePosition;
import java.io.IOException;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;

/** Reads the same protobuf envelopes as every other contestant, and counts them. */
public class PositionReader extends AbstractDeserializationSchema<Position> {
    private static final long serialVersionUID = 1L;

    /** How many events were read; sources run in this JVM, so one counter sees them all. */
    public static final LongAdder READ = new LongAdder();

    @Override
    public Position deserialize(byte[] message) throws IOException {
        Event event = Event.parseFrom(message);
        VehiclePosition said = VehiclePosition.parseFrom(event.getDetails().getValue());
        Position position = new Position();
        position.vehicleId = said.getVehicleId();
        position.line = said.getLine();
        if (said.hasLatitude()) {
            position.latitude = said.getLatitude();
        }
        if (said.hasLongitude()) {
            position.longitude = said.getLongitude();
        }
        if (said.hasSpeed()) {
            position.speed = said.getSpeed();
        }
        if (said.hasAcceleration()) {
            position.acceleration = said.getAcceleration();
        }
        position.hasDelay = said.hasDelay();
        position.delay = said.getDelay();
        position.eventTime =
                event.getEventTimestamp().getSeconds() * 1000 + event.getEventTimestamp().getNanos() / 1_000_000;
        READ.increment();
        return position;
    }
}
