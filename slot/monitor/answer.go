package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// answer is what observeSQL returns, in the types of an Observation where these fit.
type answer struct {
	Now      time.Time        `json:"now"`
	End      time.Time        `json:"end"`
	Server   Server           `json:"server"`
	Limit    Limit            `json:"limit"`
	Current  postgres.TextLSN `json:"current"`
	Standbys string           `json:"synchronized_standby_slots"`
	Slots    []slotAnswer     `json:"slots"`
	Stream   *struct {
		Walsender
		Sent postgres.TextLSN `json:"sent"`
	} `json:"stream"`
	Decoding *struct {
		Decoding
		CountedSince time.Time `json:"counted_since"`
	} `json:"decoding"`
	Transactions []blockerAnswer `json:"transactions"`
	Prepared     []blockerAnswer `json:"prepared"`
	Feedback     []blockerAnswer `json:"feedback"`
	Pages        *int64          `json:"pages"`
	Checkpoint   *struct {
		Time     time.Time        `json:"time"`
		Redo     postgres.TextLSN `json:"redo"`
		Timeline int32            `json:"timeline"`
	} `json:"checkpoint"`
	WALDirectory *int64         `json:"wal_directory"`
	Archive      *archiveAnswer `json:"archive"`
}

type slotAnswer struct {
	slot.CatalogRow
	Xmin           string `json:"xmin"`
	XminAge        *int64 `json:"xmin_age"`
	CatalogXminAge *int64 `json:"catalog_xmin_age"`
}

type blockerAnswer struct {
	Blocker
	XID uint64 `json:"xid,string"` // hides that of Blocker
	Age int64  `json:"age"`        // hides that of Blocker
}

// timedAnswer is an answer, with the times of the request and the response by our clock.
type timedAnswer struct {
	answer
	before, after time.Time
}

// queryServer requests what the login has the rights r for. name is that of the slot.
func queryServer(ctx context.Context, conn *pgx.Conn, r rights, name string,
	volume int64) (timedAnswer, error) {
	a := timedAnswer{before: time.Now()}
	document, err := postgres.One[[]byte](ctx, conn,
		observeSQL(postgres.Major(conn), r, volume), name)
	if err != nil {
		return timedAnswer{}, fmt.Errorf("observe the server: %w", err)
	}
	a.after = time.Now()
	return a, postgres.Wrap(json.Unmarshal(document, &a.answer),
		"observe the server: read its answer")
}

// clock compares the server's clock at both ends of the statement with ours at both ends of the
// wait. How the rest divides between request and response is not known.
func (a timedAnswer) clock() *Clock {
	request, response := a.Now.Sub(a.before), a.after.Sub(a.End)
	return &Clock{Skew: Seconds((request - response).Seconds() / 2),
		Error: Seconds(max(0, request+response).Seconds() / 2), at: a.after}
}

func (a timedAnswer) server() Server {
	if a.Checkpoint != nil {
		a.Server.Timeline = a.Checkpoint.Timeline
	}
	return a.Server
}

func (a timedAnswer) limit(volume int64) Limit {
	l := a.Limit
	l.VolumeSize, l.WALDirectory = volume, a.WALDirectory
	if l.MaxSlotWALKeepSize != nil {
		l.Effective = new(max(*l.MaxSlotWALKeepSize, l.WALKeepSize))
	}
	return l
}

// statuses returns all slots of the server, ordered by name, and their rows by name.
func (a timedAnswer) statuses() (all []slot.Status, rows map[string]slotAnswer) {
	rows = map[string]slotAnswer{}
	for _, row := range a.Slots {
		all = append(all, slot.NewStatus(row.Parse(), pglogrepl.LSN(a.Current), a.after))
		rows[row.Name] = row
	}
	return all, rows
}

func (a timedAnswer) walsender() *Walsender {
	if a.Stream == nil {
		return nil
	}
	a.Stream.SentLSN = pglogrepl.LSN(a.Stream.Sent)
	return &a.Stream.Walsender
}

func (a timedAnswer) decoding() *Decoding {
	if a.Decoding == nil {
		return nil
	}
	a.Decoding.countedSince = a.Decoding.CountedSince
	return &a.Decoding.Decoding
}

// standbyBehind is how long a standby may take to confirm WAL. One that keeps up takes
// milliseconds, but the walsender waits for those too: under load at nearly every look.
const standbyBehind = 30 * time.Second

// standbys returns the slots that own waits for; none unless it has failover.
func (a timedAnswer) standbys(own slot.Slot, all []slot.Status, rs readings) []StandbySlot {
	if !own.Failover {
		return nil
	}
	var standbys []StandbySlot
	for name := range strings.SplitSeq(a.Standbys, ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if name == "" {
			continue
		}
		standby := StandbySlot{Name: name, Blocks: true}
		if i := slices.IndexFunc(all, func(s slot.Status) bool { return s.Name == name }); i >= 0 {
			s := all[i]
			standby.Exists, standby.Active, standby.WALStatus = true, s.Active, s.WALStatus
			standby.InactiveSince, standby.Logical = s.InactiveSince, s.Plugin != ""
			standby.Blocks = !s.Active || s.Lost() || standby.Logical
			behind := rs.beyond(s.RestartLSN)
			if !standby.Blocks && a.waitsForStandby() && behind.Duration() >= standbyBehind {
				standby.Blocks, standby.Behind, standby.BehindBytes = true, behind, s.RetainedBytes
			}
		}
		standbys = append(standbys, standby)
	}
	return standbys
}

// waitsForStandby reports whether the walsender sends nothing until the standbys confirm more.
func (a timedAnswer) waitsForStandby() bool {
	return a.Stream != nil && a.Stream.WaitEvent == "WaitForStandbyConfirmation"
}

// Observe makes a single Observation, without rates and events. The error is slot.ErrNotFound if
// there is no slot of this name.
func Observe(ctx context.Context, conn *pgx.Conn, name string, cfg Config) (Observation, error) {
	m := Monitor{need: slot.Requirements{Slot: slot.Config{Name: name}}, cfg: cfg}
	status, err := m.observe(ctx, conn)
	o := m.observation
	o.Slot = status
	return o, err
}
