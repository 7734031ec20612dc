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
	WALDirectory *int64 `json:"wal_directory"`
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
	Age int64  `json:"age"`
}

// asked is an answer, with the times of the request and the response by our clock.
type asked struct {
	answer
	before, after time.Time
}

func ask(ctx context.Context, conn *pgx.Conn, r rights, name string, volume int64) (asked, error) {
	a := asked{before: time.Now()}
	document, err := postgres.One[[]byte](ctx, conn,
		observeSQL(postgres.Major(conn), r, volume), name)
	if err != nil {
		return asked{}, fmt.Errorf("observe the server: %w", postgres.Error(err))
	}
	a.after = time.Now()
	return a, postgres.Wrap(json.Unmarshal(document, &a.answer),
		"observe the server: read its answer")
}

// clock compares the server's clock at both ends of its work with ours at both ends of the wait.
// How the rest divides between the two ways is not known.
func (a asked) clock() *Clock {
	there, back := a.Now.Sub(a.before), a.after.Sub(a.End)
	return &Clock{Skew: Seconds((there - back).Seconds() / 2),
		Error: Seconds(max(0, there+back).Seconds() / 2)}
}

func (a asked) server() Server {
	if a.Checkpoint != nil {
		a.Server.Timeline = a.Checkpoint.Timeline
	}
	return a.Server
}

func (a asked) limit(volume int64) Limit {
	l := a.Limit
	l.VolumeSize, l.WALDirectory = volume, a.WALDirectory
	if l.MaxSlotWALKeepSize != nil {
		l.Effective = new(max(*l.MaxSlotWALKeepSize, l.WALKeepSize))
	}
	return l
}

// statuses are all slots of the server, by name.
func (a asked) statuses() (all []slot.Status, rows map[string]slotAnswer) {
	rows = map[string]slotAnswer{}
	for _, row := range a.Slots {
		all = append(all, slot.NewStatus(row.Parse(), pglogrepl.LSN(a.Current), a.after))
		rows[row.Name] = row
	}
	return all, rows
}

func (a asked) walsender() *Walsender {
	if a.Stream == nil {
		return nil
	}
	a.Stream.SentLSN = pglogrepl.LSN(a.Stream.Sent)
	return &a.Stream.Walsender
}

func (a asked) decoding() *Decoding {
	if a.Decoding == nil {
		return nil
	}
	a.Decoding.countedSince = a.Decoding.CountedSince
	return &a.Decoding.Decoding
}

// standbys is empty unless a slot with failover has to wait for others.
func (a asked) standbys(own slot.Slot, all []slot.Status) []StandbySlot {
	if !own.Failover {
		return nil
	}
	var standbys []StandbySlot
	for name := range strings.SplitSeq(a.Standbys, ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if name == "" {
			continue
		}
		g := StandbySlot{Name: name, Blocks: true}
		if i := slices.IndexFunc(all, func(s slot.Status) bool { return s.Name == name }); i >= 0 {
			s := all[i]
			g.Exists, g.Active, g.InactiveSince, g.WALStatus = true, s.Active, s.InactiveSince, s.WALStatus
			g.Blocks = !s.Active || s.Lost()
		}
		standbys = append(standbys, g)
	}
	return standbys
}

// Observe looks once: there are no rates, and nothing is known of before. ErrNotFound if there is
// no slot of this name.
func Observe(ctx context.Context, conn *pgx.Conn, name string, cfg Config) (Observation, error) {
	m := Monitor{need: slot.Requirements{Slot: slot.Config{Name: name}}, cfg: cfg}
	status, err := m.observe(ctx, conn)
	o := m.observation
	o.Slot = status
	return o, err
}
