"""What the parts of one app share: handlers find it by their request."""
