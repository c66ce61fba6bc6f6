"""Records of TFRecord files."""
