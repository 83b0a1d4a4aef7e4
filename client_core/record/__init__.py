"""Record batches of format v2: builder, decoder, codecs."""
