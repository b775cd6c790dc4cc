-- Takes units off counters again: only where the counter still exists, never below 0, and its time to
-- live stays; and off logs, of one that is audited beside its counter. README.md is the contract.

-- Takes units of a moment off a log, those with the highest serials, so that those left have no gap. How many; nil and a
-- text if that failed.
local function take_off(key, moment, units)
  local found = try('ZRANGE', key, moment, moment, 'BYSCORE', 'REV', 'LIMIT', 0, units + 1)
  local taken = 0
  for _, member in ipairs(found) do
    -- An audited one's own member is none of them.
    if taken < units and find(member, '^%d') then
      local done = try('ZREM', key, member)
      if type(done) == 'table' then
        return nil, done.err
      end
      taken = taken + done
    end
  end
  if found.err then
    return nil, found.err
  end
  return taken
end

local reply, key = {}, 1
for place = 1, #ARGV / 3 do
  local kind, units, moment = ARGV[3 * place - 2], tonumber(ARGV[3 * place - 1]), ARGV[3 * place]
  local counted, taken, fault
  if kind == LOG then
    taken, fault = take_off(KEYS[key], moment, units)
  else
    counted, fault = count(KEYS[key])
    taken = counted and min(counted, units)
    if taken and taken > 0 then
      local done = try('DECRBY', KEYS[key], format('%.0f', taken))
      fault = type(done) == 'table' and done.err or nil
    end
    if kind == AUDITED then
      local number = match(KEYS[key], '%d+$')
      key = key + 1
      if taken and taken > 0 and not fault then
        -- What the log remembers of the counter stays what that holds.
        try('ZADD', KEYS[key], 'XX', 'INCR', format('%.0f', taken), number)
      end
      local done, why = take_off(KEYS[key], moment, units)
      fault = fault or not done and why
    end
  end
  key = key + 1
  reply[place] = fault or taken
end
return reply
