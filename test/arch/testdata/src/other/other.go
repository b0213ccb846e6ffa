package other

import "errors"

var Limit = 3

var ErrOther = errors.New("other")
