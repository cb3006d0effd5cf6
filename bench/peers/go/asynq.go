package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
)

// The checks for due and for new tasks are as frequent as is useful; by default they are 5 s and 1 s apart.
const (
	asynqDueCheck  = 100 * time.Millisecond
	asynqTaskCheck = 10 * time.Millisecond
)

// asynqSystem keeps due times in whole seconds, rounded down: some tasks come early.
type asynqSystem struct{ redis asynq.RedisClientOpt }

func newAsynq(o options) system { return asynqSystem{asynq.RedisClientOpt{Addr: o.url, PoolSize: 64}} }

type asynqClient struct{ *asynq.Client }

// sharedAsynq is one client of all posters, as asynq means it: it has a pool of connections.
var sharedAsynq *asynq.Client

func (a asynqSystem) sender() (sender, error) {
	if sharedAsynq == nil {
		sharedAsynq = asynq.NewClient(a.redis)
	}
	return asynqClient{sharedAsynq}, sharedAsynq.Ping()
}

// send has no call for many: 64 goroutines share a batch.
func (c asynqClient) send(due time.Time, bodies [][]byte) error {
	if len(bodies) == 1 {
		return c.enqueue(due, bodies[0])
	}
	work := make(chan []byte, len(bodies))
	for _, body := range bodies {
		work <- body
	}
	close(work)
	return together(make([]sender, min(64, len(bodies))), func(sender) error {
		for body := range work {
			if err := c.enqueue(due, body); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c asynqClient) enqueue(due time.Time, body []byte) error {
	_, err := c.Enqueue(asynq.NewTask("bench", body), asynq.ProcessAt(due))
	return err
}

func (a asynqSystem) receive(ctx context.Context, consumers int, in *inbox) error {
	server := asynq.NewServer(a.redis, asynq.Config{
		Concurrency: consumers, DelayedTaskCheckInterval: asynqDueCheck, TaskCheckInterval: asynqTaskCheck,
		LogLevel: asynq.ErrorLevel,
	})
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		in.got(task.Payload())
		// The server acknowledges when the handler returns.
		in.ack(1)
		return nil
	})
	if err := server.Start(handler); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}
