"""What is known of topics and their leaders, as answers: prepared, waited for, listed."""
