"""Tables of the samples in containers: tar, TFRecord, RecordIO and LMDB files."""
