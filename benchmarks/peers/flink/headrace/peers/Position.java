package headrace.peers;

/** A vehicle's report, as far as the jobs read it. Public fields and an empty constructor make it a Flink POJO. */
public class Position {
    public String vehicleId;
    public String line;
    public double latitude = Double.NaN;
    public double longitude = Double.NaN;
    public double speed = Double.NaN;
    public double acceleration = Double.NaN;
    public int delay;
    public boolean hasDelay;
    /** The H3 cell at resolution 9; 0 where there is no position. */
    public long cell;
    /** Milliseconds since the epoch. */
    public long eventTime;

    public Position() {}

    public boolean isPlaced() {
        return !Double.isNaN(latitude) && !Double.isNaN(longitude);
    }
}
