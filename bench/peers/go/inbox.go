package main

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// patience is how long the inbox waits for the next message before it gives up.
const patience = 15 * time.Second

// inbox collects what is received.
type inbox struct {
	mutex    sync.Mutex
	seen     map[int]bool
	late     []float64 // in ms; below zero it came early
	again    int
	acked    int
	expected map[int]bool // nil: every number is
	missing  int          // of the expected
	latest   time.Time
	ended    bool
	failure  error
	complete chan struct{}
	stop     context.CancelFunc
	stopped  chan struct{}
}

// startInbox begins to receive; count different messages are expected, those of any number or of these alone.
func startInbox(s system, consumers, count int, expected map[int]bool) *inbox {
	ctx, stop := context.WithCancel(context.Background())
	in := &inbox{
		seen: make(map[int]bool, count), expected: expected, missing: count, latest: time.Now(),
		complete: make(chan struct{}), stop: stop, stopped: make(chan struct{}),
	}
	go func() {
		err := s.receive(ctx, consumers, in)
		in.mutex.Lock()
		if ctx.Err() == nil {
			in.failure = err
		}
		in.mutex.Unlock()
		close(in.stopped)
	}()
	return in
}

// got notes a message that was received and is not acknowledged yet.
func (in *inbox) got(body []byte) {
	now := time.Now()
	due, number, err := readBody(body)
	in.mutex.Lock()
	defer in.mutex.Unlock()
	switch {
	case err != nil:
		in.failure = err
	case in.seen[number]:
		in.again++
	default:
		in.seen[number] = true
		in.late = append(in.late, now.Sub(due).Seconds()*1_000)
		if in.expected == nil || in.expected[number] {
			in.missing--
		}
	}
}

// ack notes that so many more messages are acknowledged.
func (in *inbox) ack(count int) {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	in.latest = time.Now()
	in.acked += count
	in.check()
}

// expectOnly corrects how many different messages are expected.
func (in *inbox) expectOnly(count int) {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	in.missing = count - len(in.seen)
	in.check()
}

// check looks whether all that is expected is received and acknowledged.
func (in *inbox) check() {
	if !in.ended && in.missing <= 0 && in.acked >= len(in.seen)+in.again {
		in.ended = true
		close(in.complete)
	}
}

// wait returns when all messages have come, or when none came for a while after the first could have come.
func (in *inbox) wait(first time.Duration) {
	defer func() {
		in.stop()
		<-in.stopped
	}()
	begin := time.Now().Add(max(first, 0))
	for {
		select {
		case <-in.complete:
			return
		case <-in.stopped:
			return
		case <-time.After(100 * time.Millisecond):
			if time.Since(begin) > patience && time.Since(in.last()) > patience {
				return
			}
		}
	}
}

func (in *inbox) last() time.Time {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	return in.latest
}

func (in *inbox) err() error {
	in.mutex.Lock()
	defer in.mutex.Unlock()
	return in.failure
}

// lateness is read after wait.
func (in *inbox) lateness() result {
	slices.Sort(in.late)
	early, _ := slices.BinarySearch(in.late, 0)
	return result{
		"received": len(in.seen), "again": in.again, "early": early,
		"p50_ms": quantile(in.late, 0.5), "p99_ms": quantile(in.late, 0.99),
	}
}

// quantile is the value that this part of the sorted values do not exceed.
func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(float64(len(sorted))*part)), 1)-1]
}
