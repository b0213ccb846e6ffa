package backend

import "bytes"

// connectionFields are the values of the Connection fields of the head that
// begins in the buffer, nil if it is longer than that. net/http forgets what else
// they name where one says close.
func (c *Conn) connectionFields() []string {
	var values []string
	for read := 0; ; {
		there, _ := c.reader.Peek(c.reader.Buffered())
		for {
			end := bytes.IndexByte(there[read:], '\n')
			if end < 0 {
				break
			}
			line := bytes.TrimSuffix(there[read:read+end], []byte("\r"))
			if len(line) == 0 {
				return values
			}
			const name = "Connection:"
			if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
				values = append(values, string(bytes.TrimSpace(line[len(name):])))
			}
			read += end + 1
		}
		if len(there) == c.reader.Size() {
			return nil
		}
		if _, err := c.reader.Peek(len(there) + 1); err != nil {
			return nil // who reads the head finds it as well
		}
	}
}
