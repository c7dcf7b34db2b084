"""A process that takes records, waits for a line on its standard input, and then tries to write them: see test_members.

python stopped_member.py BOOTSTRAP TOPIC DECIDED REVIEW DEAD
"""

import sys

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.headers import Stamp, decision_headers
from slotstream.operators.kafka.session import close_sessions, session_for
from slotstream.operators.kafka.sink import Outgoing, SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.write import WriteFn
from slotstream.schemas.errors import BrokerError


def main(bootstrap: str, topic: str, decided: str, review: str, dead: str) -> None:
    kafka = KafkaConfig(bootstrap_servers=bootstrap)
    source = SourceConfig(topic=topic, group=f"group-of-{topic}", session_timeout_ms=6_000)
    sink = SinkConfig(decided=decided, review=review, dead=dead)
    stamp = Stamp("cafe", "labels", "0.1.0")
    session = session_for(kafka, source)
    while session.wait(1_000) < 20:
        pass
    messages = session.take(20)
    write = WriteFn(kafka, source, sink, stamp, fenced=True)
    write.start_bundle()
    print(f"took {len(messages)}", flush=True)
    sys.stdin.readline()
    try:
        for message in messages:
            write.process(Outgoing("decided", message, message.value, decision_headers(message, stamp)))
        write.finish_bundle()
        print("wrote", flush=True)
    except BrokerError as error:
        print(f"refused itself: {error}", flush=True)
    session.rewind()
    while not session.assigned:
        session.wait(100)
    print("member again", flush=True)
    close_sessions()


if __name__ == "__main__":
    main(*sys.argv[1:])
