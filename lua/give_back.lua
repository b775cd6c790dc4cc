-- Takes units off counters again: only where the counter still exists, never below 0, and its time to
-- live stays; and off the log of one that is audited. README.md is the contract.

local reply, key = {}, 1
for place = 1, #ARGV / 2 do
  local units, moment = tonumber(ARGV[2 * place - 1]), ARGV[2 * place]
  local counted, fault = count(KEYS[key])
  local taken = counted and min(counted, units)
  if taken and taken > 0 then
    local done = try('DECRBY', KEYS[key], format('%.0f', taken))
    fault = type(done) == 'table' and done.err or nil
  end
  if moment ~= '' then
    local number = match(KEYS[key], '%d+$')
    key = key + 1
    if taken and taken > 0 and not fault then
      -- What the log remembers of the counter stays what that holds.
      try('ZADD', KEYS[key], 'XX', 'INCR', format('%.0f', taken), number)
    end
    -- The highest serials, so that those left have no gap. The log's own member is none of them.
    local found = try('ZRANGE', KEYS[key], moment, moment, 'BYSCORE', 'REV', 'LIMIT', 0, units + 1)
    for _, member in ipairs(found) do
      if units > 0 and find(member, '^%d') then
        try('ZREM', KEYS[key], member)
        units = units - 1
      end
    end
    fault = fault or found.err
  end
  key = key + 1
  reply[place] = fault or taken
end
return reply
