package headrace.peers;

/** One result: what it is about, its window (none: 0), and up to four numbers. */
public class Answer {
    public String key;
    public long windowStart;
    public long windowEnd;
    public long eventTime;
    public String[] names;
    public double[] values;

    public Answer() {}

    public Answer(String key, long windowStart, long windowEnd, long eventTime, String[] names, double[] values) {
        this.key = key;
        this.windowStart = windowStart;
        this.windowEnd = windowEnd;
        this.eventTime = eventTime;
        this.names = names;
        this.values = values;
    }
}
