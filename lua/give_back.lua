-- Takes units off counters again: only where the counter still exists, never below 0, and its time to
-- live stays. README.md is the contract.

local reply = {}
for place = 1, #KEYS do
  local units, fault = count(KEYS[place])
  local taken = units and min(units, tonumber(ARGV[place]))
  if taken and taken > 0 then
    local done = try('DECRBY', KEYS[place], format('%.0f', taken))
    fault = type(done) == 'table' and done.err or nil
  end
  reply[place] = fault or taken
end
return reply
