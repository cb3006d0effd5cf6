package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// batch sends by one client in batches until all is sent or the time is over. Nothing becomes due.
func batch(s system, o options) (result, error) {
	client, err := s.sender()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	sent := 0
	for sent < o.count && time.Since(began) < o.limit {
		size := min(o.batch, o.count-sent)
		if err := client.send(began.Add(far), bodies(began.Add(far), sent, size, o.body)); err != nil {
			return nil, err
		}
		sent += size
	}
	return rate(sent, began), nil
}

func bodies(due time.Time, first, count, size int) [][]byte {
	all := make([][]byte, count)
	for i := range all {
		all[i] = newBody(due, first+i, size)
	}
	return all
}

func rate(count int, began time.Time) result {
	seconds := time.Since(began).Seconds()
	return result{"accepted": count, "seconds": seconds, "per_s": float64(count) / seconds}
}

// single does the same by many posters at once, each message in a call of its own.
func single(s system, o options) (result, error) {
	clients, err := connect(s, o.posters)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	due := began.Add(far)
	var next, accepted atomic.Int64
	err = together(clients, func(client sender) error {
		for time.Since(began) < o.limit {
			number := int(next.Add(1)) - 1
			if number >= o.count {
				return nil
			}
			if err := client.send(due, bodies(due, number, 1, o.body)); err != nil {
				return err
			}
			accepted.Add(1)
		}
		return nil
	})
	return rate(int(accepted.Load()), began), err
}

func connect(s system, count int) ([]sender, error) {
	clients := make([]sender, count)
	for i := range clients {
		client, err := s.sender()
		if err != nil {
			return nil, err
		}
		clients[i] = client
	}
	return clients, nil
}

// together runs work once for each client, all at the same time, and returns the first error.
func together(clients []sender, work func(sender) error) error {
	var group sync.WaitGroup
	failed := make(chan error, len(clients))
	for _, client := range clients {
		group.Go(func() {
			if err := work(client); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed
}

// late sends at a steady rate, each message due 2 s after its send, and measures when each is received. A system that accepts less
// than the rate is sent less.
func late(s system, o options) (result, error) {
	const (
		delay   = 2 * time.Second
		tick    = 10 * time.Millisecond
		senders = 16
	)
	clients, err := connect(s, senders)
	if err != nil {
		return nil, err
	}
	span := time.Duration(o.seconds) * time.Second
	ticks, size := int(span/tick), o.rate*int(tick/time.Millisecond)/1_000
	inbox := startInbox(s, o.consumers, ticks*size, nil)
	var next, sent atomic.Int64
	began := time.Now()
	err = together(clients, func(client sender) error {
		for {
			number := int(next.Add(1)) - 1
			if number >= ticks || time.Since(began) > span {
				return nil
			}
			time.Sleep(time.Until(began.Add(time.Duration(number) * tick)))
			due := time.Now().Add(delay).Truncate(time.Millisecond)
			if err := client.send(due, bodies(due, number*size, size, o.body)); err != nil {
				return err
			}
			sent.Add(int64(size))
		}
	})
	if err != nil {
		return nil, err
	}
	sending := time.Since(began).Seconds()
	inbox.expectOnly(int(sent.Load()))
	inbox.wait(delay)
	found := inbox.lateness()
	found["sent"], found["sent_per_s"] = sent.Load(), float64(sent.Load())/max(sending, span.Seconds())
	return found, inbox.err()
}

// burst sends messages that are all due at one instant, as many as are accepted before it, and measures when the last of them is received and acknowledged.
func burst(s system, o options) (result, error) {
	client, err := s.sender()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	due := began.Add(o.lead).Truncate(time.Second)
	sent := 0
	for sent < o.count && time.Now().Before(due) {
		size := min(o.batch, o.count-sent)
		if err := client.send(due, bodies(due, sent, size, o.body)); err != nil {
			return nil, err
		}
		sent += size
	}
	found := rate(sent, began)
	// Below zero, the last batch was accepted after the instant.
	found["spare_s"] = time.Until(due).Seconds()
	inbox := startInbox(s, o.consumers, sent, nil)
	inbox.wait(time.Until(due))
	for key, value := range inbox.lateness() {
		found[key] = value
	}
	found["burst_s"] = inbox.last().Sub(due).Seconds()
	return found, inbox.err()
}
