package monitor

// changedPages is an expression for the number of pages of tables and indexes that were changed
// since the statistics were reset, the server's whole life as a rule: new pages, and those that
// went to the WAL as a whole since they were changed for the first time after a checkpoint. Its
// growth is about what the next checkpoint has to write, which no function of the server tells. It
// goes backwards when statistics are reset.
//
// Any role may ask. Backends report what they did once a second, and a transaction that is open
// only at its end.
func changedPages(major int) string {
	return `(` + newPages(major) + ` + ` + firstChanges + `)::bigint`
}

// newPages is what tables and indexes have grown by. Before 16 only the sum is counted of that and
// of pages that backends wrote because no buffer was free.
func newPages(major int) string {
	switch {
	case major >= 18:
		return `(SELECT pg_catalog.sum(extend_bytes) / pg_catalog.current_setting('block_size')::numeric
			FROM pg_catalog.pg_stat_io WHERE object = 'relation')`
	case major >= 16:
		return `(SELECT pg_catalog.sum(extends) FROM pg_catalog.pg_stat_io WHERE object = 'relation')`
	}
	return `(SELECT buffers_backend::numeric FROM pg_catalog.pg_stat_bgwriter)`
}

// firstChanges are the images of whole pages in the WAL. Without full_page_writes there are none;
// then each changed row counts as a page, which is too many rather than too few.
const firstChanges = `CASE WHEN pg_catalog.current_setting('full_page_writes')::boolean
	THEN (SELECT wal_fpi::numeric FROM pg_catalog.pg_stat_wal)
	ELSE (SELECT pg_catalog.sum(tup_inserted + tup_updated + tup_deleted) FROM
	pg_catalog.pg_stat_database) END`
