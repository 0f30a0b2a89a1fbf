"""The application: live analysis of Helsinki's public transport, on top of a platform that knows nothing of buses."""
