"""The sweep over correct parallel configurations: what false alarms ttrace raises (none is allowed)."""
