package replication

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/postgres"
)

// raiseWorkMem lets the server keep larger transactions in memory while it decodes them for this connection. What is larger than
// logical_decoding_work_mem it writes to disk and reads back: a transaction of a million rows took a third longer to arrive. It is never lowered.
//
// Every role may set it. It is set by a statement, not when the connection is made, since poolers refuse parameters that they do not know. A server that
// does not want it decodes all the same.
func (s *Stream) raiseWorkMem(ctx context.Context, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	const kiB = 1 << 10 // its unit
	sql := fmt.Sprintf("SELECT pg_catalog.set_config('logical_decoding_work_mem', '%d', false) "+
		"WHERE pg_catalog.pg_size_bytes(pg_catalog.current_setting('logical_decoding_work_mem')) < %d", bytes/kiB, bytes/kiB*kiB)
	_, err := s.conn.Exec(ctx, sql).ReadAll()
	if postgres.SQLState(err) != "" {
		s.log.Warn().Err(err).Msg("logical_decoding_work_mem not raised: large transactions go through the server's disk")
		return nil
	}
	if err != nil {
		return fmt.Errorf("raise logical_decoding_work_mem: %w", startError(err))
	}
	return nil
}
