"""The graph of a module in other tools' formats, and the page that ``hloopt report`` writes."""
