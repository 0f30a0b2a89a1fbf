"""Time: durations, instants, clocks and watermark strategies, all in whole microseconds, UTC."""
