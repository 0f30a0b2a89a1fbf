"""Headrace beside its peers: the same jobs on Flink, and on Spark's own operators where it has them.

    make peers                       # everything; about 15 minutes
    python -m benchmarks.peers       # the same

Each contestant reads the same filled topic on the same cores in the same run, decodes the same protobuf envelopes, and
writes its results to Kafka. The jobs for Flink are in `flink/`, in plain Java with its DataStream and pattern
libraries; they run in a mini-cluster with two slots, heap state and a checkpoint every 10 s. Its jars are pinned in
`jars.lock` and come from the public Maven repository, like Headrace's own.
"""
