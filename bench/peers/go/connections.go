package main

import (
	"context"
	"errors"
	"sync"
)

// eachConnection runs work so many times at once until ctx ends or one fails; then it ends all of them.
func eachConnection(ctx context.Context, count int, work func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var group sync.WaitGroup
	for range count {
		group.Go(func() { stop(work(ctx)) })
	}
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
