package headrace.peers;

import com.uber.h3core.H3Core;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;

/** Gives a position its H3 cell. */
public class WithCell extends RichMapFunction<Position, Position> {
    private static final long serialVersionUID = 1L;
    private static final int RESOLUTION = 9;

    private transient H3Core h3;

    @Override
    public void open(OpenContext context) throws Exception {
        h3 = H3Core.newInstance();
    }

    @Override
    public Position map(Position position) {
        position.cell =
                position.isPlaced() ? h3.latLngToCell(position.latitude, position.longitude, RESOLUTION) : 0L;
        return position;
    }
}
