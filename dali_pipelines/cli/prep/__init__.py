"""dali-pipelines prep: make level 1.5 FITS files of level 1 files."""
