-- What wrk asks and counts. IDENTIFIER is put in by wrk.rs.
local head = "GET /orders/7 HTTP/1.1\r\nHost: bench\r\nX-API-Key: "
local count = 0

function next(first)
  count = count + 1
  return first + count - 1
end

function request()
  return head .. string.format("%016x", IDENTIFIER) .. "\r\n\r\n"
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests": %d, "refused": %d, "failed": %d, "took": %d, "p50": %d, "p99": %d}',
    summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    summary.duration, latency:percentile(50), latency:percentile(99)))
end
