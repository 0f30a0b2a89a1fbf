package headrace.peers;

import com.tdunning.math.stats.TDigest;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The jobs, as one writes them with Flink's DataStream and CEP libraries. */
public final class Jobs {
    private static final Duration STEP = Duration.ofSeconds(5);

    private Jobs() {}

    /** Vehicles per cell by the newest position of each in the last 30 s, every 5 s. */
    public static DataStream<Answer> vehicleDistribution(DataStream<Position> positions) {
        return positions
                .map(new WithCell())
                .filter(position -> position.cell != 0)
                .keyBy(position -> position.vehicleId)
                .window(SlidingEventTimeWindows.of(Duration.ofSeconds(30), STEP))
                .reduce((one, two) -> two.eventTime >= one.eventTime ? two : one)
                // What a window gives carries the time of its end, so that 5 s of them are one window again.
                .keyBy(position -> position.cell)
                .window(TumblingEventTimeWindows.of(STEP))
                .aggregate(new Count(), new CountOfCell());
    }

    /** p50, p90, p99 of the delay per cell in the last 5 min, every 5 s. */
    public static DataStream<Answer> delayDistribution(DataStream<Position> positions) {
        return positions
                .map(new WithCell())
                .filter(position -> position.cell != 0 && position.hasDelay)
                .keyBy(position -> position.cell)
                .window(SlidingEventTimeWindows.of(Duration.ofMinutes(5), STEP))
                .aggregate(new Delays(), new DelaysOfCell());
    }

    /** From 10 m/s to below 1 m/s within 10 s, braking all the way. */
    public static DataStream<Answer> emergencyStop(DataStream<Position> positions) {
        Pattern<Position, ?> stop =
                Pattern.<Position>begin("cruising", AfterMatchSkipStrategy.skipPastLastEvent())
                        .where(SimpleCondition.of(position -> position.speed >= 10))
                        .next("braking")
                        .where(SimpleCondition.of(position -> position.acceleration < 0))
                        .oneOrMore()
                        .consecutive()
                        .next("stopped")
                        .where(SimpleCondition.of(position -> position.speed < 1))
                        .within(Duration.ofSeconds(10));
        return CEP.pattern(positions.keyBy(position -> position.vehicleId), stop).process(new Stops());
    }

    private static final class Count implements AggregateFunction<Position, Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Position position, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long one, Long two) {
            return one + two;
        }
    }

    private static final class CountOfCell extends ProcessWindowFunction<Long, Answer, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;

        @Override
        public void process(Long cell, Context context, Iterable<Long> counts, Collector<Answer> out) {
            long end = context.window().getEnd();
            double[] values = {counts.iterator().next()};
            out.collect(
                    new Answer(Long.toString(cell), end - 30_000, end, end - 1, new String[] {"vehicles"}, values));
        }
    }

    private static final class Delays implements AggregateFunction<Position, TDigest, TDigest> {
        private static final long serialVersionUID = 1L;

        @Override
        public TDigest createAccumulator() {
            return TDigest.createMergingDigest(100);
        }

        @Override
        public TDigest add(Position position, TDigest delays) {
            delays.add(position.delay);
            return delays;
        }

        @Override
        public TDigest getResult(TDigest delays) {
            return delays;
        }

        @Override
        public TDigest merge(TDigest one, TDigest two) {
            one.add(two);
            return one;
        }
    }

    private static final class DelaysOfCell extends ProcessWindowFunction<TDigest, Answer, Long, TimeWindow> {
        private static final long serialVersionUID = 1L;
        private static final String[] NAMES = {"p50", "p90", "p99", "n"};

        @Override
        public void process(Long cell, Context context, Iterable<TDigest> delays, Collector<Answer> out) {
            TDigest digest = delays.iterator().next();
            TimeWindow window = context.window();
            double[] values = {
                digest.quantile(0.5), digest.quantile(0.9), digest.quantile(0.99), (double) digest.size()
            };
            out.collect(
                    new Answer(
                            Long.toString(cell), window.getStart(), window.getEnd(), window.maxTimestamp(), NAMES, values));
        }
    }

    private static final class Stops extends PatternProcessFunction<Position, Answer> {
        private static final long serialVersionUID = 1L;
        private static final String[] NAMES = {"speed", "duration", "deceleration"};

        @Override
        public void processMatch(Map<String, List<Position>> match, Context context, Collector<Answer> out) {
            Position first = match.get("cruising").get(0);
            Position last = match.get("stopped").get(0);
            double hardest = 0;
            for (Position braking : match.get("braking")) {
                hardest = Math.max(hardest, -braking.acceleration);
            }
            double[] values = {first.speed, (last.eventTime - first.eventTime) / 1000.0, hardest};
            out.collect(new Answer(last.vehicleId, 0, 0, last.eventTime, NAMES, values));
        }
    }
}
