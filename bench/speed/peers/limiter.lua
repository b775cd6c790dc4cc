-- The sliding window counter as one would write it for nginx: one call of a script for each request.
local redis = require "nginx.redis"
local SCRIPT = [[
local call = redis.call
local current = tonumber(call('GET', KEYS[1])) or 0
local previous = tonumber(call('GET', KEYS[2])) or 0
local limit, window, elapsed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if current * window + previous * (window - elapsed) >= limit * window then
  return {0, current, previous}
end
if call('INCR', KEYS[1]) == 1 then
  call('EXPIRE', KEYS[1], window * 2)
end
return {1, current + 1, previous}
]]
local LIMIT, WINDOW, sha = 1000000000, 60, nil

return function()
  local client = redis:new()
  client:set_timeout(1000)
  local connected, fault = client:connect("127.0.0.1", STORE)
  if not connected then
    ngx.log(ngx.ERR, fault)
    return ngx.exit(500)
  end
  if not sha then
    sha = client:script("LOAD", SCRIPT)
  end
  local now = ngx.now()
  local number = math.floor(now / WINDOW)
  local prefix = "rl:{" .. ngx.var.http_x_api_key .. "}:"
  local reply = client:evalsha(sha, 2, prefix .. number, prefix .. number - 1, LIMIT, WINDOW, now - number * WINDOW)
  client:set_keepalive(10000, 128)
  if not reply then
    return ngx.exit(500)
  end
  local remaining = math.max(0, math.floor(LIMIT - reply[2]))
  ngx.header["X-RateLimit-Limit"] = LIMIT
  ngx.header["X-RateLimit-Remaining"] = remaining
  ngx.header["X-RateLimit-Reset"] = (number + 1) * WINDOW
  ngx.shared.counts:incr(reply[1] == 1 and "admitted" or "denied", 1, 0)
  if reply[1] == 0 then
    return ngx.exit(429)
  end
end
