"""(1) Poll: what has TiCDC written?"""
