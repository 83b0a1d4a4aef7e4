"""The parts of one running app, its error handlers, and its status report."""
