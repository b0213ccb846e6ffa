package pure

import (
	"math/rand/v2"
	"time"
)

type clock struct{ now func() time.Time }

func bad() {
	go bad()                           // want `a pure package starts no goroutine`
	_ = time.Now()                     // want `time.Now in a pure package: the time is an argument`
	_ = time.Since(time.Time{})        // want `time.Since in a pure package`
	_ = time.Until(time.Time{})        // want `time.Until in a pure package`
	time.Sleep(time.Second)            // want `time.Sleep in a pure package: it says when it is due`
	_ = time.After(time.Second)        // want `time.After in a pure package`
	time.AfterFunc(1, bad)             // want `time.AfterFunc in a pure package`
	_ = time.NewTimer(1)               // want `time.NewTimer in a pure package`
	_ = time.NewTicker(1)              // want `time.NewTicker in a pure package`
	_ = clock{now: time.Now}           // want `time.Now in a pure package`
	_ = rand.IntN(3)                   // want `rand.IntN in a pure package: the random source is an argument`
	rand.Shuffle(0, func(int, int) {}) // want `rand.Shuffle in a pure package`
}

func good(now time.Time, random *rand.Rand) time.Time {
	_ = random.IntN(3)
	_ = rand.New(rand.NewPCG(1, 2))
	return now.Add(time.Second).Truncate(time.Minute)
}
