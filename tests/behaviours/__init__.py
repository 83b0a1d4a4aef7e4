"""Which test shows which behaviour, and which test of Kafka's own has its twin here.

A test says so itself, by a marker:

    @pytest.mark.behaviour("META-01", "META-02")         ids of behaviours.toml
    @pytest.mark.java("MetadataTest.TimeToNextUpdate")    cases of java_tests.toml

and a test module says which it leaves out, and why, by a constant that is read without importing it:

    LEFT_OUT: Final = {"MetadataTest.NodeIfOffline": "no caller asks for a node by its being online"}

`make behaviours` writes the table, behaviours.md. `test_behaviours.py` fails on a behaviour of first rank
without a test, on an applicable case of Java's without twin or reason, on an unknown id, and on a stale
table.
"""
