"""The commands of the application, one module each: `headrace demo`, `headrace simulate`, `headrace replay`."""
